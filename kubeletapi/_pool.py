"""Generated from `proto/` by `make proto`; do not edit."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()

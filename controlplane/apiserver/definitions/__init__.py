"""CustomResourceDefinitions: the rules for them, and the validation of custom resources by their schemas."""

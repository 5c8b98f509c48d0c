"""CustomResourceDefinitions: what one must be, and what its schema asks of custom resources."""

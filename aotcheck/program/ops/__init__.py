"""The ops that programs may call: the registry, its tables, and the tensor subclasses known by a key."""

"""The ops that programs may call: the registry, its tables, and the registered tensor subclasses."""

"""How each kind of op is recorded while the function runs on replicas."""

"""Global state that ops depend on besides their operands: autocast, generators, ``.grad``, modes."""

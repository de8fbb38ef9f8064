"""What surrounds the function while it is traced: its inputs, modes, backwards inside and after it."""

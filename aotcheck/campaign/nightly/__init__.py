"""What runs every night: its configuration, the night itself, what nights have told."""

"""Programs as Python source: written by ``emit``, read by ``parse``."""

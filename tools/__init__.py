"""The project's own lints."""

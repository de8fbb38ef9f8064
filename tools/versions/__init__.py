"""aotcheck on every torch that it supports: an environment for each, the same checks in each, one table."""

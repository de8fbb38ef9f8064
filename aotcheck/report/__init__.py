"""Consumers of a campaign's events: run.jsonl, the live display, the summary."""

"""The results of a run: its findings minimized, grouped by signature, ranked, summed up, and written as reports."""

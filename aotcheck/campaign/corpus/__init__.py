"""Saved programs: corpus files, which bugs they hold, which are missing, and how they are judged again."""

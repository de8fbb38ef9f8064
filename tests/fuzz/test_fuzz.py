"""The bounded campaign that every test run makes.

``pytest tests/fuzz -n auto --fuzz-time 10m --backend inductor`` goes on.
"""

from aotcheck.fuzzing import test_random_programs_agree_with_eager

__all__ = ["test_random_programs_agree_with_eager"]

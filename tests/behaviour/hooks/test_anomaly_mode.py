"""Anomaly mode around the call and its backward."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check_session
from tests.behaviour.inputs import leaf


def test_anomaly_mode_around_call_and_backward():
    def session(compile):
        x = leaf(3)
        with torch.autograd.detect_anomaly(check_nan=True):
            y = compile(lambda x: x * x)(x)
            backward([y])
        yield x

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        check_session(session)


def test_anomaly_mode_reports_a_nan_of_the_backward():
    def session(compile):
        x = leaf(3)
        with torch.autograd.detect_anomaly(check_nan=True):
            y = compile(lambda x: (x - x).sqrt() * 0)(x)
            found = attempt_later(lambda: backward([y]))
        yield type(found), getattr(found, "type", None)

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        check_session(session)

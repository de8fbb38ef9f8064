"""The zoo: small programs of the kinds that people train, run eagerly and through a backend.

The fuzzer draws programs that people rarely write. A model here is what people write often: modules, a loss, a
backward, an optimizer, batches whose sizes change.
"""

from aotcheck.zoo.judge import Outcome, Result, judged
from aotcheck.zoo.model import MODELS, Kind, Model, Place, Program, Schedule, UnknownModelError, model, models_named

__all__ = [
    "MODELS",
    "Kind",
    "Model",
    "Outcome",
    "Place",
    "Program",
    "Result",
    "Schedule",
    "UnknownModelError",
    "judged",
    "model",
    "models_named",
]

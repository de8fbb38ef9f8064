"""States of the default generators, saved and gone back to."""

import torch

GeneratorStates = tuple[torch.Tensor, list[torch.Tensor]]


def other_devices(x: torch.Tensor) -> list[torch.device]:
    """The devices whose generators ``fork_rng`` forks beside that of the CPU."""
    return [x.device] if x.is_cuda else []


def generator_states(x: torch.Tensor) -> GeneratorStates:
    """The states of all default generators: to go back with one of them alone is refused where there are several."""
    return torch.get_rng_state(), [torch.cuda.get_rng_state(d) for d in other_devices(x)]


def set_generator_states(states: GeneratorStates, x: torch.Tensor) -> None:
    """Go back to what ``generator_states`` gave."""
    torch.set_rng_state(states[0])
    for device, state in zip(other_devices(x), states[1], strict=True):
        torch.cuda.set_rng_state(state, device)

"""How much of torch our AOT autograd handles: torch's own databases of ops and modules, run through it and compared.

Each op and module of ``torch.testing``'s databases is run forward and backward through ``aotcheck.aot_function``, again
with new values, and compared with eager; and the same through torch's ``aot_function``, to know what is hard. Results
lie on disk, so a run may be cut off and goes on where it stopped.
"""

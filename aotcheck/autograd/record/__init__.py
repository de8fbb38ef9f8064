"""What a traced call does, as steps that the runtime repeats."""

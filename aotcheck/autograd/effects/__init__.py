"""What a traced call did, read off its replicas, and how it is done again for each caller."""

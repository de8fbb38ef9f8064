"""What a finding is: its canonical form, its signature, what it does, how odd it is, what it is called."""

"""The properties of a finding: its canonical form, its signature, its impact, its oddity, its title."""

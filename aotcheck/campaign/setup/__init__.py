"""What a campaign is told: its settings, its strategy and what that declares, the programs of a block."""

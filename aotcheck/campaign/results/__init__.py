"""What a run came to: findings minimized and told apart, ranked, summed up, written as reports to post."""

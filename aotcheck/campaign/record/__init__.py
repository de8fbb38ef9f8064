"""What happens in a campaign, as data: events, the journal, and what is counted of them."""

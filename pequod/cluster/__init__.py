"""Many servers as one cache: home servers, subscriptions, and the map between them."""

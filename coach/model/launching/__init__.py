"""A launch and its surroundings: the request, the plan, the training environment, the site's limits."""

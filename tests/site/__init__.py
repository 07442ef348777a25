"""A site's installation and switches, tested as its administrators use them."""

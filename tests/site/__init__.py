"""What a site installs and switches on, tried as its administrators would."""

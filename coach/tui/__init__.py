"""The screens: a Textual app over the same workflows as the commands."""

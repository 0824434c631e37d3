"""The ``hookbus`` command. Above it are people and scripts; below it all the other components."""

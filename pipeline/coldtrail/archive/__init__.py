"""Where sealed segments rest."""

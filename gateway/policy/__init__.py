"""What the operator wrote, as frozen data: `model` says what there is, `load` reads it, `routes` picks from it."""

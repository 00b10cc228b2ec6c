"""What the operator wrote, as frozen data: `model` says what there is, `load` reads it, `select` picks from it."""

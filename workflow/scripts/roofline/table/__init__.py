"""What follows from the records: operators under roofs, verification, acceptance, spread."""

"""What the rules find and miss, by simulation about measured spreads. The documents' tables are made of it."""

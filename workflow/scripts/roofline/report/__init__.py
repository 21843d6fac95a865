"""Tables, words, pictures and the terminal."""

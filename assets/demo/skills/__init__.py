"""The skills of the demo model: one module writes the questions and answers of one skill."""

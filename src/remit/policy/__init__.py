"""How a call is judged: from a tool call as an agent sends it to a decision, with the reasons."""

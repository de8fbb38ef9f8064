"""How a program runs in eager: builds inputs, interprets statements, performs steps, guards memory."""

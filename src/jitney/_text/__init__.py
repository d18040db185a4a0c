"""What people read: text in terminals, pictures as SVG, values in messages, data as JSON."""

"""Which agents there are, which nodes each decides for, and what each has been told of them."""

//! Where Doorstep is touched: the HTTP API.

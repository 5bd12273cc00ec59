#!/bin/sh
# The page: asks both neighbours by the hosts that Slipway gave them.
orders=$(busybox wget -qO- "http://$ORDERS_HOST:8080/cgi-bin/order")
prices=$(busybox wget -qO- "http://$PRICES_HOST:8080/")
printf 'Content-Type: text/plain\r\n\r\norders: %s\n%s\n' "$orders" "$prices"

// Package routes tests which policies apply to which routes, through the routers of all frameworks.
package routes

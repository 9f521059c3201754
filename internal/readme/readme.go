// Package readme holds the code that README.md and its neighbours show, so that
// it is compiled and run. Its tests look every snippet up.
package readme

// Package readme holds the code that README.md, docs and the other documents
// show, so that it is compiled and run. Its tests look up every block.
package readme

//go:build !race

package words

const raceDetector = false

import QtQuick 2.15

Item {
    width: 320
    height: 240
    Rectangle {
        anchors.fill: parent
        gradient: Gradient {
            GradientStop { position: 0; color: "navy" }
            GradientStop { position: 1; color: "gold" }
        }
    }
    Repeater {
        model: 12
        Rectangle {
            x: 10 + 24 * index
            y: 20 + 8 * index
            width: 40
            height: 40
            radius: 6
            rotation: 15 * index
            opacity: 0.6
            antialiasing: true
            color: Qt.hsla(index / 12, 1, 0.5, 1)
        }
    }
    Timer {
        interval: 500
        running: true
        onTriggered: parent.grabToImage(function(picture) {
            picture.saveToFile("scene.png")
            Qt.quit()
        })
    }
}

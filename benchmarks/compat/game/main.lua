-- A picture that depends on nothing but the number of the frame, saved after sixty.
local frame, shader = 0, nil

function love.load()
  shader = love.graphics.newShader([[
    vec4 effect(vec4 colour, Image image, vec2 at, vec2 pixel) {
      return vec4(fract(pixel.x / 32.0), fract(pixel.y / 24.0), colour.b, 1.0);
    }]])
end

function love.draw()
  love.graphics.setShader(shader)
  love.graphics.rectangle("fill", 0, 0, 320, 240)
  love.graphics.setShader()
  for i = 1, 40 do
    love.graphics.setColor(i / 40, 1 - i / 40, 0.5, 0.5)
    love.graphics.circle("fill", 160 + 6 * i * math.cos(i + frame / 10), 120 + 3 * i * math.sin(i), 12)
  end
  love.graphics.setColor(1, 1, 1, 1)
  frame = frame + 1
  if frame == 60 then
    love.graphics.captureScreenshot(function(data)
      love.filesystem.write("shot.ppm", data:getString())
      love.event.quit()
    end)
  end
end

"""Says how scenes that the project writes look: light and sky as in those that are made by hand."""

VISUAL = """<visual>
    <global offwidth="1024" offheight="1024" fovy="42"/>
    <map znear=".01" zfar="20"/>
    <headlight ambient=".32 .32 .32" diffuse=".18 .18 .18" specular="0 0 0"/>
    <quality shadowsize="2048" offsamples="4"/>
  </visual>"""
SKY = """<texture name="sky" type="skybox" builtin="gradient" rgb1=".93 .95 .97" rgb2=".72 .77 .82"
      width="64" height="64"/>"""
LIGHTS = """<light name="key" pos="1.4 -.9 2.2" dir="-.4 .4 -1" diffuse=".42 .42 .41"
      specular=".15 .15 .15"/>
    <light name="fill" pos="-.4 1.4 1.8" dir=".4 -.7 -1" diffuse=".16 .17 .18" specular="0 0 0"
      castshadow="false"/>"""
